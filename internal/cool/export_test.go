package cool

// Hold locks o until the returned function is called.
func (o *Outage) Hold() (release func()) { o.mu.Lock(); return o.mu.Unlock }
