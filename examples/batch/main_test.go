package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/testserver"
)

func TestAnInterruptedBatchContinuesWithoutLosingOrRepeatingJobs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "done")
	synctest.Test(t, func(t *testing.T) {
		stop, cancel := context.WithCancel(t.Context())
		sent := 0
		srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if sent++; sent == 30 {
					cancel()
				}
			})
		})
		send(heed.WithDrain(t.Context(), stop), srv.Transport(), srv.URL, file)
		assert.Len(t, srv.Log(), 30, "none in line is sent, and the last is answered")

		send(t.Context(), srv.Transport(), srv.URL, file)
		var keys []string
		for _, e := range srv.Log() {
			keys = append(keys, e.Header.Get("Idempotency-Key"))
		}
		for _, all := range [][]string{keys, lines(t, file)} {
			assert.Len(t, all, 100)
			slices.Sort(all)
			assert.Len(t, slices.Compact(all), 100, "each once")
		}
	})
}

func TestAJobThatFailsIsNotDone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "done")
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Idempotency-Key") == "job-07" {
					w.WriteHeader(http.StatusBadRequest)
				}
			})
		})
		send(t.Context(), srv.Transport(), srv.URL, file)
	})
	done := lines(t, file)
	assert.Len(t, done, 99)
	assert.NotContains(t, done, "job-07")
}

func lines(t *testing.T, file string) []string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.Fields(string(text))
}
