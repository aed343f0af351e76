// Package load puts a server under load: as many requests as it answers, or as many
// as are to come in a second, over many connections at once.
//
// It is for a process of its own, so that the server's has what memory it needs and
// nothing of the load's.
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

// A Load is requests for /, without a body.
type Load struct {
	Addr        string // host:port
	Connections int    // all open before the first request, and used until the end

	// Duration is how long requests are sent. What was sent is waited for.
	Duration time.Duration

	// PerSecond is how many come in a second, in all, at equal intervals on each
	// connection, however long others take. If zero, each connection sends its next
	// one when the last is answered.
	PerSecond float64
}

// A Report is what became of a Load.
type Report struct {
	Sent     int
	Statuses map[int]int // how many answers have which status
	Failed   int         // connections that were lost, or not to be had
	Failure  string      // why one was

	// P50 and P99 are of the times that answers with status 200 took, from when their
	// requests were due.
	P50, P99 time.Duration
}

// Answered is how many requests were.
func (r Report) Answered() (n int) {
	for _, count := range r.Statuses {
		n += count
	}
	return n
}

// dialers is how many connections are made at a time, so as not to overrun a listener.
const dialers = 64

// patience is how long an answer may take.
const patience = 30 * time.Second

// Run sends the requests.
func (l Load) Run() Report {
	lines := make([]line, l.Connections)
	l.each(lines, dialers, func(i int) { lines[i].dial(l.Addr) })
	start := time.Now()
	l.each(lines, len(lines), func(i int) { lines[i].send(l, i, start) })
	return report(lines)
}

// each calls do for each of lines, at most for so many at a time.
func (l Load) each(lines []line, most int, do func(i int)) {
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

// A line is a connection, and what became of its requests.
type line struct {
	conn     net.Conn
	sent     int
	statuses map[int]int
	took     []time.Duration
	err      error
}

func (c *line) dial(addr string) {
	c.statuses = make(map[int]int)
	c.conn, c.err = net.DialTimeout("tcp", addr, patience)
}

// send sends the requests of line i.
func (c *line) send(l Load, i int, start time.Time) {
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

func (c *line) request(r *bufio.Reader, due time.Time) error {
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
		return errors.New("load: the server closes the connection")
	}
	return nil
}

// interval is that of a connection's requests.
func (l Load) interval() time.Duration {
	return time.Duration(float64(l.Connections) / l.PerSecond * float64(time.Second))
}

// first is when that of connection i is due: not all at once.
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

func report(lines []line) Report {
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
