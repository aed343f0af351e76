//go:build unix

package daemon

import "syscall"

// Stop suspends the process: its connections stay open, and nothing answers.
func (d *Daemon) Stop() error { return d.Process.Signal(syscall.SIGSTOP) }

// Cont resumes a suspended process.
func (d *Daemon) Cont() error { return d.Process.Signal(syscall.SIGCONT) }
