// Package spelling finds the word that somebody meant who misspelt it.
package spelling

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns the one of words that word is closest to, or "" if none is close: if more
// than one character, and one of each four, would have to change. Case, "_" and "-" do not
// count.
func Nearest(word string, words []string) string {
	if len(words) == 0 || len(word) > longest {
		return ""
	}
	nearest := slices.MinFunc(words, func(a, b string) int {
		return cmp.Compare(distance(word, a), distance(word, b))
	})
	if distance(word, nearest) > 1+len(nearest)/4 {
		return ""
	}
	return nearest
}

// longest bounds the words that are compared, and with them the time that it takes.
const longest = 40

// distance is how many characters of a have to be inserted, deleted or changed to make b
// (Levenshtein).
func distance(a, b string) int {
	a, b = plain(a), plain(b)
	row := make([]int, len(b)+1) // of the distances between a[:i] and each b[:j]
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
