package redisstore

// A replyReader reads the elements of a reply one after the other.
type replyReader struct {
	rest   []any
	failed bool // an element was missing or of another type
}

func (r *replyReader) number() int64 { return next[int64](r) }
func (r *replyReader) text() string  { return next[string](r) }

// natural reads a number from 0 to 2^53 - 1.
func (r *replyReader) natural() int64 {
	n := r.number()
	r.failed = r.failed || n < 0 || n > exact
	return n
}

func next[T any](r *replyReader) (v T) {
	if len(r.rest) == 0 {
		r.failed = true
		return v
	}
	v, ok := r.rest[0].(T)
	r.rest, r.failed = r.rest[1:], r.failed || !ok
	return v
}
