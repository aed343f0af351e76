package rulefile

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/heedhttp/heed/serverside"
)

// A key is a KeyFunc, and the expression that it was read from, in one spelling.
type key struct {
	of   serverside.Key
	text string
}

// key reads an expression. Where it is wrong, the key is that of the client's
// address.
func (r *reader) key(s spot) key {
	text, ok := r.text(s)
	if !ok {
		return key{r.ip, "ip"}
	}
	k, rest, err := r.parseKey(text, 1)
	if err == nil && rest != "" {
		err = fmt.Errorf("there is %s after the key", quote(rest))
	}
	if err != nil {
		r.fault(s, "%v", err)
		return key{r.ip, "ip"}
	}
	return k
}

// parseKey reads the key that text begins with.
func (r *reader) parseKey(text string, depth int) (k key, rest string, err error) {
	end := strings.IndexAny(text, "(),")
	if end < 0 {
		end = len(text)
	}
	word, rest := strings.TrimSpace(text[:end]), text[end:]
	if strings.HasPrefix(rest, "(") {
		return r.parseCall(word, rest[1:], depth)
	}
	k, err = r.parseWord(word)
	return k, rest, err
}

var combinations = map[string]func(...serverside.Key) serverside.Key{"join": serverside.Join, "first": serverside.First}

// parseCall reads the keys between brackets, the first of which is read.
func (r *reader) parseCall(word, rest string, depth int) (key, string, error) {
	combine := combinations[word]
	switch {
	case word == "named" && depth <= mostDepth:
		return r.parseNamed(rest, depth)
	case combine == nil && word != "named":
		return key{}, "", fmt.Errorf("there is no %s(…): there are join, first and named", quote(word))
	case depth > mostDepth:
		return key{}, "", errors.New("is nested too deeply")
	}
	var funcs []serverside.Key
	var texts []string
	for {
		k, after, err := r.parseKey(rest, depth+1)
		if err != nil {
			return key{}, "", err
		}
		funcs, texts = append(funcs, k.of), append(texts, k.text)
		rest = strings.TrimSpace(after)
		if inner, ok := strings.CutPrefix(rest, ")"); ok {
			text := word + "(" + strings.Join(texts, ", ") + ")"
			return key{combine(funcs...), text}, strings.TrimSpace(inner), nil
		}
		var more bool
		if rest, more = strings.CutPrefix(rest, ","); !more {
			return key{}, "", errors.New("a closing bracket is missing")
		}
	}
}

// parseNamed reads a name and a key, up to the closing bracket.
func (r *reader) parseNamed(rest string, depth int) (key, string, error) {
	name, rest, more := strings.Cut(rest, ",")
	if name = strings.TrimSpace(name); !more || !fieldName.MatchString(name) {
		return key{}, "", errors.New("named(…) has a name and a key, as in named(user, header:X-User)")
	}
	k, rest, err := r.parseKey(rest, depth+1)
	if err != nil {
		return key{}, "", err
	}
	rest, closed := strings.CutPrefix(strings.TrimSpace(rest), ")")
	if !closed {
		return key{}, "", errors.New("a closing bracket is missing")
	}
	return key{serverside.Named(name, k.of), "named(" + name + ", " + k.text + ")"}, strings.TrimSpace(rest), nil
}

var fieldName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// parseWord reads a key that is no combination of others.
func (r *reader) parseWord(word string) (key, error) {
	source, name, named := strings.Cut(word, ":")
	source, name = strings.TrimSpace(source), strings.TrimSpace(name)
	switch {
	case word == "":
		return key{}, errors.New("a key is missing")
	case word == "ip":
		return key{r.ip, word}, nil
	case word == "peer":
		return key{serverside.ClientIP(), word}, nil
	case !named:
		of, err := lookUp(r, r.env.Keys, word, "key", []string{"ip", "peer"})
		if of == nil {
			of = serverside.KeyFunc(func(*http.Request) string { return "" }) // it is wrong, or unknown
		}
		return key{of, word}, err
	case !fieldName.MatchString(name):
		return key{}, fmt.Errorf("%s is no name of a %s", quote(name), source)
	}
	switch source {
	case "header":
		name = http.CanonicalHeaderKey(name)
		return key{serverside.Header(name), source + ":" + name}, nil
	case "cookie":
		return key{serverside.Cookie(name), source + ":" + name}, nil
	case "form":
		return key{serverside.FormValue(name), source + ":" + name}, nil
	}
	return key{}, fmt.Errorf("there is no key %s: write header:NAME, cookie:NAME or form:NAME", quote(word))
}

// lookUp returns the function of a name that the program gave it. If there is none,
// that is an error, unless Env is Lenient.
func lookUp[F any](r *reader, functions map[string]F, name, what string, others []string) (f F, err error) {
	f, ok := functions[name]
	if ok || r.env.Lenient && fieldName.MatchString(name) {
		return f, nil
	}
	known := slices.Concat(others, slices.Sorted(maps.Keys(functions)))
	if len(known) == 0 {
		return f, fmt.Errorf("there is no %s %s: the program has named none", what, quote(name))
	}
	return f, fmt.Errorf("there is no %s %s: there is %s%s", what, quote(name), strings.Join(known, ", "), didYouMean(name, known))
}

// function returns the function that s names; the zero F if there is none.
func function[F any](r *reader, s spot, functions map[string]F, what string, others ...string) (f F, name string) {
	name, ok := r.text(s)
	if !ok {
		return f, ""
	}
	f, err := lookUp(r, functions, name, what, others)
	if err != nil {
		r.fault(s, "%v", err)
	}
	return f, name
}
