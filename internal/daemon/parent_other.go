//go:build !linux

package daemon

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
