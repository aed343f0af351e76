// Package load puts a server under load over many connections: with as many requests as it answers, or
// with a given number a second.
//
// Run it in a separate process, so that the memory of the server's process contains nothing of the
// load's.
package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A Load is a number of GET requests for /.
type Load struct {
	Addr        string // host:port
	Connections int    // all are opened before the first request and used until the end

	// Duration is how long requests are sent. Run then waits for the last answers.
	Duration time.Duration

	// PerSecond is the number of requests a second on all connections together, at equal intervals,
	// however long answers take. If zero, each connection sends its next request when the last one
	// is answered.
	PerSecond float64
}

// A Report is the result of a Load.
type Report struct {
	Sent     int
	Statuses map[int]int // the number of answers by status
	Failed   int         // connections that broke or could not be opened
	Failure  string      // the reason for one of them

	// P50 and P99 are percentiles of the time to an answer with status 200, counted from when the
	// request was due.
	P50, P99 time.Duration
}

// Answered returns the number of answers.
func (r Report) Answered() (n int) {
	for _, count := range r.Statuses {
		n += count
	}
	return n
}

// dialers is how many connections are opened at a time, so as not to overrun the listener.
const dialers = 64

// patience is how long an answer may take.
const patience = 30 * time.Second

// Run sends the requests.
func (l Load) Run() Report {
	lines := make([]connection, l.Connections)
	l.each(lines, dialers, func(i int) { lines[i].dial(l.Addr) })
	start := time.Now()
	l.each(lines, len(lines), func(i int) { lines[i].send(l, i, start) })
	return report(lines)
}

// each calls do for each connection. At most this many calls run at the same time.
func (l Load) each(lines []connection, most int, do func(i int)) {
	var all sync.WaitGroup
	places := make(chan bool, most)
	for i := range lines {
		places <- true
		all.Go(func() {
			do(i)
			<-places
		})
	}
	all.Wait()
}

// A connection counts the outcomes of its requests.
type connection struct {
	conn     net.Conn
	sent     int
	statuses map[int]int
	took     []time.Duration
	err      error
}

func (c *connection) dial(addr string) {
	c.statuses = make(map[int]int)
	c.conn, c.err = net.DialTimeout("tcp", addr, patience)
}

// send sends the requests of connection i.
func (c *connection) send(l Load, i int, start time.Time) {
	if c.err != nil {
		return
	}
	defer c.conn.Close()
	reader := bufio.NewReaderSize(c.conn, 1024)
	for due := l.first(i, start); c.err == nil && due.Sub(start) < l.Duration; due = l.next(due) {
		time.Sleep(time.Until(due))
		c.conn.SetDeadline(time.Now().Add(patience))
		c.err = c.request(reader, due)
	}
}

var request = []byte("GET / HTTP/1.1\r\nHost: heed.example\r\n\r\n")

func (c *connection) request(r *bufio.Reader, due time.Time) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	c.sent++
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	c.statuses[resp.StatusCode]++
	if resp.StatusCode == http.StatusOK {
		c.took = append(c.took, time.Since(due))
	}
	if resp.Close {
		return errors.New("load: the server closed the connection")
	}
	return nil
}

// interval is the time between two requests of a connection.
func (l Load) interval() time.Duration {
	return time.Duration(float64(l.Connections) / l.PerSecond * float64(time.Second))
}

// first is when connection i sends its first request. Connections start one after the other.
func (l Load) first(i int, start time.Time) time.Time {
	if l.PerSecond == 0 {
		return start
	}
	return start.Add(l.interval() * time.Duration(i) / time.Duration(l.Connections))
}

func (l Load) next(due time.Time) time.Time {
	if l.PerSecond == 0 {
		return time.Now()
	}
	return due.Add(l.interval())
}

func report(lines []connection) Report {
	r := Report{Statuses: make(map[int]int)}
	var took []time.Duration
	for i := range lines {
		c := &lines[i]
		r.Sent += c.sent
		for status, n := range c.statuses {
			r.Statuses[status] += n
		}
		if c.err != nil {
			r.Failed++
			r.Failure = fmt.Sprint(c.err)
		}
		took = append(took, c.took...)
	}
	if len(took) > 0 {
		slices.Sort(took)
		r.P50, r.P99 = took[len(took)/2], took[len(took)*99/100]
	}
	return r
}
