package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/heedhttp/heed/pace"
)

// A bar shows how far a batch is. The Queue calls it one at a time.
type bar struct {
	jobs  int
	done  func() int
	drawn time.Time
}

func (b *bar) draw(p pace.Progress) {
	if time.Since(b.drawn) < 100*time.Millisecond {
		return
	}
	b.drawn = time.Now()
	const width = 40
	done := b.done()
	full := strings.Repeat("#", width*done/max(1, b.jobs))
	fmt.Printf("\r[%-*s] %d/%d done, %d in line, %d under way, %d refused ", width, full, done, b.jobs, p.Waiting, p.Sent, p.Refused)
}
