package stage

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Screen is where the program shows what it does: a terminal, or a file.
type Screen struct {
	io.Writer
	live   bool // lines can be written over
	colour bool
}

// NewScreen finds out what w can show.
func NewScreen(w io.Writer) *Screen {
	live := isTerminal(w) && os.Getenv("TERM") != "dumb"
	return &Screen{w, live, live && os.Getenv("NO_COLOR") == ""}
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
	red   = "31"
	green = "32"
)

// paint returns text in a colour or weight, where there are any.
func (s *Screen) paint(style, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// Follow shows how a part gets on, in one line on a terminal, else in one every
// two seconds, until stop is called.
func (s *Screen) Follow(name string, jobs int, now func() Tally) (stop func()) {
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

func (s *Screen) progress(line string) {
	if s.live {
		fmt.Fprint(s, "\r", line, "\x1b[K")
	} else {
		fmt.Fprintln(s, line)
	}
}

// progressLine is shorter than a terminal is wide. There may be more done than there are
// jobs, which may be a guess.
func progressLine(name string, jobs int, t Tally) string {
	const width = 10
	full := min(width, width*t.Done/max(1, jobs))
	return fmt.Sprintf("%-20s %s%s %s/%s jobs, %s requests, %s refused", name,
		strings.Repeat("▰", full), strings.Repeat("▱", width-full),
		Grouped(t.Done), Grouped(jobs), Grouped(t.Requests), Grouped(t.Refused))
}

// Grouped is n with its thousands set apart.
func Grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// InSeconds is d to a tenth.
func InSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
