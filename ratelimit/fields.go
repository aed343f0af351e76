package ratelimit

// A text says where in it the values of one Set stand. They are rendered into
// one text and cut from it, so that they are allocated together; and each only
// once, however many fields have it.
type text struct {
	item                  *item // of the tightest limit, if it was prepared
	state                 piece // what RateLimit says
	quota                 piece // of the tightest limit, if it has no item
	remaining             piece // of the tightest limit, as are the next two
	deltaReset, unixReset piece
}

// render appends what changes from one Set to the next.
func (x *text) render(b []byte, f *frame, limits []Limit) []byte {
	tightest := &limits[0]
	x.item = f.item(0, tightest.Name)
	if f.style&Draft11 != 0 {
		b = x.state11(b, f, limits)
	}
	if f.style&Draft07 != 0 {
		b = x.state07(b, tightest)
	}
	if f.style&triples != 0 {
		b = x.triple(b, f.style, tightest)
	}
	return b
}

// A piece is where a value stands in a text. No value is empty, so the zero piece
// is of one that was not rendered.
type piece struct{ from, to int }

// of returns the value.
func (p piece) of(text string) string { return text[p.from:p.to] }

// integer appends n, and notes where it stands.
func (p *piece) integer(b []byte, n int64) []byte {
	p.from = len(b)
	b = appendInteger(b, n)
	p.to = len(b)
	return b
}
