package ratelimit

import "net/http"

// fields are lines to be written, rendered into one text one after the other,
// so that writing them takes two allocations however many they are.
type fields struct {
	lines [8]line // as many as all styles have together
	n     int
}

// A line is one line of a field.
type line struct {
	name  string // canonical
	value string // if empty, in the text, up to end
	end   int
	list  bool // whether it continues what the header has
}

// rendered adds a line whose value ends with text.
func (f *fields) rendered(name string, text []byte, list bool) {
	f.lines[f.n] = line{name: name, end: len(text), list: list}
	f.n++
}

// fixed adds a line of a list whose value was rendered before, if it has one.
func (f *fields) fixed(name, value string) {
	if value != "" {
		f.lines[f.n] = line{name: name, value: value, list: true}
		f.n++
	}
}

// write puts the lines into h. Their values share one array, but each has a
// capacity of one, so that nobody appends into the next.
func (f *fields) write(h http.Header, text string) {
	values := make([]string, f.n)
	start := 0
	for i := range values {
		l := &f.lines[i]
		if values[i] = l.value; l.value == "" {
			values[i] = text[start:l.end]
			start = l.end
		}
		if l.list {
			if has := h[l.name]; len(has) > 0 {
				h[l.name] = append(has, values[i])
				continue
			}
		}
		h[l.name] = values[i : i+1 : i+1]
	}
}
