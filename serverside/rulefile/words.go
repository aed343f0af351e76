package rulefile

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/heedhttp/heed/internal/spelling"
)

// fileWords are the words of a file for those of Go: of fields, and of what may be in
// them.
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

// goWord finds words that may be Go's, but for those in quotes, which are the file's.
var goWord = regexp.MustCompile(`"(?:\\.|[^"\\])*"|\b[A-Z][\w-]*`)

// inFile is what serverside and quota say, a field or a reason, in the words of a file.
func inFile(said string) string {
	said = strings.ReplaceAll(said, ", or OnViolations be set", "") // which only a program can
	return goWord.ReplaceAllStringFunc(said, func(word string) string { return cmp.Or(fileWords[word], word) })
}

// quote is what a fault says of text that may be long, or not text at all.
func quote(text string) string {
	if len(text) > 40 {
		text = strings.ToValidUTF8(text[:40], "") + "…"
	}
	return strconv.Quote(text)
}

// nearest returns the name that a word is most like, and asks whether that was meant. If
// there is none like it, it returns the word itself.
func nearest(word string, names []string) (name, hint string) {
	if name = spelling.Nearest(word, names); name == "" {
		return word, ""
	}
	return name, fmt.Sprintf(": did you mean %q?", name)
}
