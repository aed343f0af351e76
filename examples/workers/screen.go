package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// A screen is where the program shows what it does: a terminal, or a file.
type screen struct {
	io.Writer
	live   bool // lines can be written over
	colour bool
}

func newScreen(w io.Writer) *screen {
	live := isTerminal(w) && os.Getenv("TERM") != "dumb"
	return &screen{w, live, live && os.Getenv("NO_COLOR") == ""}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

const (
	bold  = "1"
	faint = "2"
	red   = "31"
	green = "32"
)

// paint returns text in a colour or weight, where there are any.
func (s *screen) paint(style, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// follow shows how a part gets on, in one line on a terminal, else in one every
// two seconds, until stop is called.
func (s *screen) follow(name string, jobs int, now func() tally) (stop func()) {
	every := 2 * time.Second
	if s.live {
		every = 100 * time.Millisecond
	}
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				s.progress(progressLine(name, jobs, now()))
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		close(stopped)
		<-done
		s.progress(progressLine(name, jobs, now()))
		if s.live {
			fmt.Fprintln(s)
		}
	}
}

func (s *screen) progress(line string) {
	if s.live {
		fmt.Fprint(s, "\r", line, "\x1b[K")
	} else {
		fmt.Fprintln(s, line)
	}
}

// progressLine is shorter than a terminal is wide.
func progressLine(name string, jobs int, t tally) string {
	const width = 10
	full := width * t.done / max(1, jobs)
	return fmt.Sprintf("%-20s %s%s %s/%s jobs, %s requests, %s refused", name,
		strings.Repeat("▰", full), strings.Repeat("▱", width-full),
		grouped(t.done), grouped(jobs), grouped(t.requests), grouped(t.refused))
}

// grouped is n with its thousands set apart.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
