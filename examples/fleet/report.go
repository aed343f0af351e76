package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed/examples/internal/stage"
)

// A report is what the server saw of the processes.
type report struct {
	stage.Result
	served [processes]int // jobs of each
	told   *stage.Arrival // who was refused first, if anybody
	wentOn time.Duration  // how much later the last of the others' requests came
	quiet  time.Duration  // how long none came after that
}

func newReport(r stage.Result) *report {
	p := &report{Result: r}
	for i := range r.Log {
		a := &r.Log[i]
		if a.Status == http.StatusOK {
			p.served[process(a)]++
		}
		if a.Status == http.StatusTooManyRequests && p.told == nil {
			p.told = a
		}
	}
	if p.told != nil {
		p.silence()
	}
	return p
}

// process is whose job a is.
func process(a *stage.Arrival) int {
	job, _ := strconv.Atoi(path.Base(a.Job))
	return max(0, job-1) / plenty
}

// silence finds the longest pause that begins while the cool-down holds.
func (p *report) silence() {
	last := p.told.Answered
	for _, a := range p.Log {
		if pause := a.At.Sub(last); pause > p.quiet {
			p.quiet, p.wentOn = pause, last.Sub(p.told.Answered)
		}
		if a.At.After(p.told.Answered) {
			last = a.At
		}
		if last.Sub(p.told.Answered) > coolDown {
			return
		}
	}
}

// jain is Jain's index of fairness: 1 if all were served alike, 1/n if one was
// served everything.
func jain(served []int) float64 {
	var sum, squares float64
	for _, n := range served {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(served)) * max(1, squares))
}

// write shows p, and returns what must not be.
func (p *report) write(w io.Writer) error {
	for i, n := range p.served {
		fmt.Fprintf(w, "process %d  %4d  %s\n", i+1, n, strings.Repeat("█", n*40/max(1, p.Done)))
	}
	fmt.Fprintf(w, "\nJain's index of fairness is %.3f.\n", jain(p.served[:]))
	if p.told != nil {
		fmt.Fprintf(w, "Process %d was told to wait for %v. The others went on for %v; then nobody came for %v.\n",
			process(p.told)+1, coolDown, p.wentOn.Round(time.Millisecond/10), p.quiet.Round(time.Millisecond))
	}
	if p.Degraded > 0 {
		fmt.Fprintf(w, "Redis did not answer %d times; meanwhile each process kept to its share.\n", p.Degraded)
	}
	err := p.Fault()
	if p.Refused != 1 {
		err = errors.Join(err, fmt.Errorf("%d requests were refused, and not the one of half-time alone", p.Refused))
	}
	return err
}
