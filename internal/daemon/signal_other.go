//go:build !unix

package daemon

import "errors"

// Stop would suspend the process.
func (d *Daemon) Stop() error { return errors.ErrUnsupported }

// Cont would let it go on.
func (d *Daemon) Cont() error { return errors.ErrUnsupported }
