package redisstore

// A reader reads a reply. ok is false once there was less than was to be read.
type reader struct {
	rest string
	ok   bool
}

func (r *reader) next(n int) (s string) {
	if n > len(r.rest) {
		r.rest, r.ok = "", false
		return ""
	}
	s, r.rest = r.rest[:n], r.rest[n:]
	return s
}

func (r *reader) bit() bool { return r.next(1) == "\x01" }

// value reads what follows its length.
func (r *reader) value() string {
	n := number(r.next(1))
	if n == 255 {
		n = number(r.next(2))
	}
	return r.next(int(n))
}
