package daemon

import "syscall"

// dieWithParent makes the kernel end the daemon if the test is killed.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
