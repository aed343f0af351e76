package redisstore

import "sync/atomic"

// A onceError is the newest error of its kind, which is reported once. Its zero value is no error.
type onceError struct{ atomic.Pointer[error] }

func (e *onceError) put(err error) { e.Store(&err) }

func (e *onceError) take() error {
	if e.Load() == nil {
		return nil
	}
	if err := e.Swap(nil); err != nil {
		return *err
	}
	return nil
}
