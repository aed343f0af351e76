package rulefile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/heedhttp/heed/serverside"
)

// mostFaults is how many faults of a file are told: who has made more has made a
// few of them often.
const mostFaults = 100

// A reader makes a Config of nodes, and collects what is wrong with them.
type reader struct {
	file   string
	env    Env
	faults []*Fault
	places map[string]spot // by the name that a ConfigError has for the field

	ip      serverside.Key     // what ip means
	ipText  string             // the same in words
	keyText string             // what Config.Key is
	proxies serverside.Proxies // which ip is made of
	body    string             // of denials, as the file names it
	rules   []*rule
	entries []*entry
}

// A spot is a value in its place.
type spot struct {
	*node
	field string // where it is in the file: rules[2].key
	goes  string // where it goes in Config: Rules[2].Key
}

func (r *reader) fault(s spot, format string, args ...any) {
	if len(r.faults) < mostFaults {
		r.faults = append(r.faults, &Fault{r.file, s.line, s.column, s.field, fmt.Sprintf(format, args...)})
	}
}

// wants reports whether s is of a kind, which is a fault if not.
func (r *reader) wants(s spot, k kind) bool {
	switch {
	case s.kind == k:
		return true
	case s.kind == null:
		r.fault(s, "is empty: leave it out, or say what it is")
	default:
		r.fault(s, "is %v: must be %v", s.kind, k)
	}
	return false
}

// A field is one that an object of the file may have.
type field[T any] struct {
	name string // in the file
	goes string // in T, as a ConfigError names it
	form string // what may be written, for people
	says string // what it means, for people
	read func(*reader, spot, *T)
}

// readObject reads an object into T. Fields are read in the order of the table,
// whatever that of the file is.
func readObject[T any](r *reader, s spot, fields []field[T], into *T) {
	if !r.wants(s, object) {
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	r.keys(s, names)
	for _, f := range fields {
		if value := s.get(f.name); value != nil {
			f.read(r, r.at(s, value, f.name, f.goes), into)
		}
	}
}

// keys checks that an object's keys are among names, and each there once.
func (r *reader) keys(s spot, names []string) {
	first := make(map[string]int)
	for _, key := range s.node.keys {
		at := spot{key, within(s.field, brief(key.text)), ""}
		if key.kind != scalar {
			r.fault(spot{key, s.field, ""}, "has %v for a field's name", key.kind)
			continue
		}
		if line := first[key.text]; line > 0 {
			r.fault(at, "is there twice: it is in line %d too", line)
			continue
		}
		first[key.text] = key.line
		if !slices.Contains(names, key.text) {
			r.fault(at, "there is no such field%s", didYouMean(key.text, names))
		}
	}
}

// at is the value of s's field name, and remembers where it goes.
func (r *reader) at(s spot, value *node, name, goes string) spot {
	at := spot{value, within(s.field, name), s.goes}
	if goes != "" {
		at.goes = within(s.goes, goes)
		r.places[at.goes] = at
	}
	return at
}

func within(outer, name string) string {
	if outer == "" {
		return name
	}
	return outer + "." + name
}

// items are the elements of a list; or s itself, where a list of one may do
// without brackets.
func (r *reader) items(s spot) (items []spot) {
	if s.kind != list {
		at := s
		at.goes += "[0]"
		r.places[at.goes] = at
		return []spot{at}
	}
	if len(s.node.items) > mostItems {
		r.fault(s, "has %d elements: %d are too many", len(s.node.items), mostItems+1)
		return nil
	}
	for i, item := range s.node.items {
		index := "[" + strconv.Itoa(i) + "]"
		at := spot{item, s.field + index, s.goes + index}
		r.places[at.goes] = at
		items = append(items, at)
	}
	return items
}

// text returns a scalar's text, and whether it is one that is not empty.
func (r *reader) text(s spot) (string, bool) {
	switch {
	case !r.wants(s, scalar):
		return "", false
	case s.node.text == "":
		r.fault(s, "is empty: leave it out, or say what it is")
	case len(s.node.text) > mostText:
		r.fault(s, "has %d bytes: there may be %d", len(s.node.text), mostText)
	default:
		return s.node.text, true
	}
	return "", false
}

// bool returns whether a scalar is true.
func (r *reader) bool(s spot) bool {
	text, ok := r.text(s)
	if ok && (s.quoted || text != "true" && text != "false") {
		r.fault(s, "is %s: must be true or false", quote(text))
	}
	return text == "true"
}

// integer returns a number of whole units.
func (r *reader) integer(s spot) int64 {
	text, ok := r.text(s)
	if !ok {
		return 0
	}
	n, err := parseInteger(text)
	if err != nil {
		r.fault(s, "%v", err)
	}
	return n
}

// choice returns what a scalar names among what there is.
func choice[T any](r *reader, s spot, names []string, values []T) (value T) {
	text, ok := r.text(s)
	if !ok {
		return value
	}
	if i := slices.Index(names, text); i >= 0 {
		return values[i]
	}
	r.fault(s, "is %s: must be one of %s%s", quote(text), strings.Join(names, ", "), didYouMean(text, names))
	return value
}

// where returns the place of a field that Config's faults name: its own, or that
// of the nearest thing around it that the file has.
func (r *reader) where(field string) spot {
	for f := field; f != ""; f = f[:max(strings.LastIndexAny(f, ".["), 0)] {
		if s, ok := r.places[f]; ok {
			return s
		}
	}
	return spot{&node{line: 1, column: 1}, "", ""}
}

// brief is what a fault says of text that may be long, or not text at all.
func brief(text string) string {
	if len(text) > 40 {
		text = strings.ToValidUTF8(text[:40], "") + "…"
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func quote(text string) string { return `"` + brief(text) + `"` }

// didYouMean names what is nearest to a word among names, if anything is near.
func didYouMean(word string, names []string) string {
	if len(names) == 0 || len(word) > mostWord {
		return ""
	}
	nearest := slices.MinFunc(names, func(a, b string) int { return cmp.Compare(distance(word, a), distance(word, b)) })
	if d := distance(word, nearest); d > 2 || d > len(nearest)/2 {
		return ""
	}
	return "; did you mean " + nearest + "?"
}

// mostWord is the longest word that is compared with others.
const mostWord = 40

// distance is how many characters are to be put in, left out or changed to make a
// of b (Levenshtein), where case, "_" and "-" do not count.
func distance(a, b string) int {
	a, b = plain(a), plain(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

func plain(word string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(word))
}
