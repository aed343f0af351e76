// Package cool decides when requests may be sent to a server that said "not now", or says nothing.
//
// A CoolDown belongs to a customer's key: the server refused a request because of a limit. An Outage
// belongs to a host: nobody gets a good answer from it. Both work alike:
//
//   - closed: no request is sent until a certain time, or until somebody gets a good answer, but each
//     waits only for as long as it may;
//   - probe: meanwhile a single request is sent now and then, to find out whether that is over;
//   - line: the others wait, in an order;
//   - release: when it is over, the line is released evenly over a window, and never faster than
//     the server answers.
//
// Nothing here reads a clock or blocks. Times are durations since a moment that the caller chooses;
// zero is before all of them. A waiter sleeps in its own goroutine, and asks again when Wake receives
// or when the time that it was told has come.
package cool
