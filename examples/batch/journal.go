package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
)

// A journal is a file with a line for each job that is done. One process may
// have it at a time.
//
// A line is written at once, after the answer, so it survives the process. To
// survive the machine as well, add would have to call file.Sync, which takes
// some milliseconds for each job.
type journal struct {
	mu   sync.Mutex // guards what follows
	file *os.File
	done map[int]bool
}

// openJournal reads what is done. A line without an end, of a process that was
// killed while it wrote, is cut off: that job is sent again.
func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	j := &journal{file: file, done: make(map[int]bool)}
	if err := j.read(); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return j, nil
}

func (j *journal) read() error {
	text, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	for line := range bytes.Lines(whole) {
		id, err := strconv.Atoi(string(bytes.TrimSpace(line)))
		if err != nil {
			return fmt.Errorf("%q is no job's number", line)
		}
		j.done[id] = true
	}
	return j.file.Truncate(int64(len(whole)))
}

func (j *journal) has(id int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.done[id]
}

func (j *journal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.done)
}

// add writes that a job is done.
func (j *journal) add(id int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := fmt.Fprintln(j.file, id); err != nil {
		return err
	}
	j.done[id] = true
	return nil
}

func (j *journal) close() error { return j.file.Close() }
