//go:build !unix

package daemon

import "errors"

// Stop is not supported on this system.
func (d *Daemon) Stop() error { return errors.ErrUnsupported }

// Cont is not supported on this system.
func (d *Daemon) Cont() error { return errors.ErrUnsupported }
