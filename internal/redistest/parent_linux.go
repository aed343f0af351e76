package redistest

import "syscall"

// dieWithParent makes the kernel end the server if the test is killed.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
