package spelling_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/internal/spelling"
)

func TestNearest(t *testing.T) {
	words := []string{"grafana", "kong", "max_in_flight", "nginx", "ip"}
	for word, want := range map[string]string{
		"nginx":                  "nginx",
		"ngnix":                  "nginx", // two changes
		"NGINX":                  "nginx",
		"maxInFlight":            "max_in_flight",
		"max-in-flght":           "max_in_flight",
		"hong":                   "kong",
		"hung":                   "kong",
		"gnome":                  "",
		"ip6":                    "ip",
		"ssh":                    "", // nothing in common with "ip"
		"grafanaaa":              "grafana",
		"grafanaaaa":             "",
		"":                       "",
		"café":                   "",
		strings.Repeat("x", 999): "",
	} {
		assert.Equal(t, want, spelling.Nearest(word, words), word)
	}
	assert.Empty(t, spelling.Nearest("nginx", nil))
}
