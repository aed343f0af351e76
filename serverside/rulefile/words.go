package rulefile

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/heedhttp/heed/internal/spelling"
)

// fileWords maps names in Go, of fields and their values, to those in a file.
var fileWords = func() map[string]string {
	words := map[string]string{
		"ClientIP": "ip", "Deny": "body", "Settle": "charge_if",
		"BeforeAuth": "before-auth", "AfterAuth": "after-auth", "Overload": "overload",
		"TokenBucket": "token-bucket", "LeakyBucket": "leaky-bucket", "FixedWindow": "fixed-window",
		"SlidingWindow": "sliding-window", "SlidingLog": "sliding-log",
	}
	addWords(words, fileFields)
	addWords(words, ruleFields)
	addWords(words, loginFields)
	addWords(words, penaltyFields)
	addWords(words, tierFields)
	addWords(words, allowFields)
	addWords(words, policyFields)
	return words
}()

func addWords[T any](words map[string]string, fields []field[T]) {
	for _, f := range fields {
		if words[f.goes] == "" {
			words[f.goes] = f.name
		}
	}
}

// goWord finds words that may be Go's. Words in quotes are the file's.
var goWord = regexp.MustCompile(`"(?:\\.|[^"\\])*"|\b[A-Z][\w-]*`)

// inFile replaces Go names in a message of serverside or quota by those of a file.
func inFile(said string) string {
	said = strings.ReplaceAll(said, ", unless OnViolations is set", "") // a file cannot set it
	return goWord.ReplaceAllStringFunc(said, func(word string) string { return cmp.Or(fileWords[word], word) })
}

// quote quotes text in a fault. It cuts long text, and escapes what is not text.
func quote(text string) string {
	if len(text) > 40 {
		text = strings.ToValidUTF8(text[:40], "") + "…"
	}
	return strconv.Quote(text)
}

// nearest returns the name most like a word, and a hint that asks whether it was meant. If
// there is none, it returns the word.
func nearest(word string, names []string) (name, hint string) {
	if name = spelling.Nearest(word, names); name == "" {
		return word, ""
	}
	return name, fmt.Sprintf(": did you mean %q?", name)
}

// isTypo reports whether one inserted, missing or wrong character makes name another word. Case is
// ignored.
func isTypo(word, name string) bool {
	a, b := strings.ToLower(word), strings.ToLower(name)
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 1 && len(b) <= 1
}
