package export

// Expression returns the expression for the paths of a pattern.
func Expression(text string) string { return "^" + newPattern(text).path(false) }

// Covers reports whether a pattern matches all that another does.
func Covers(outer, inner string) bool { return newPattern(outer).covers(newPattern(inner)) }

// Overlaps reports whether there are requests that both patterns match.
func Overlaps(a, b string) bool { return newPattern(a).overlaps(newPattern(b)) }
