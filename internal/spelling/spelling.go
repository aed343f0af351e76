// Package spelling corrects misspelt words.
package spelling

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns the element of words closest to word, or "" if none is close. Close words differ in
// one character, or in a quarter of the characters. Case, "_" and "-" are ignored.
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

// longest bounds the length of compared words, and so the time for comparing them.
const longest = 40

// distance returns the Levenshtein distance between a and b.
func distance(a, b string) int {
	a, b = plain(a), plain(b)
	row := make([]int, len(b)+1) // distances between a[:i] and each b[:j]
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
