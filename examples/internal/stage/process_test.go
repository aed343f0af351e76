package stage

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A testOrder is to ask a server once, or to fail.
type testOrder struct{ URL, Reason string }

func (o testOrder) Obey(ctx context.Context) Outcome {
	if o.Reason != "" {
		return Outcome{Failed: 1, Reason: o.Reason}
	}
	return Load{Workers: 1, Jobs: 1}.Do(ctx, Get(http.DefaultClient, o.URL))
}

func TestProcessesObeyAndTheirOutcomesAreAddedUp(t *testing.T) {
	t.Parallel()
	out, err := Processes(t.Context(), []testOrder{{Reason: "first"}, {Reason: "first"}, {Reason: "first"}})
	assert.NoError(t, err)
	assert.Equal(t, Outcome{Failed: 3, Reason: "first"}, out)
}

func TestAProcessStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := Processes(ctx, []testOrder{{URL: silent(t, cancel)}})
	assert.ErrorIs(t, err, context.Canceled, "that of a process that was killed would tell so")
}

func TestAnOrderThatCannotBeReadIsAnError(t *testing.T) {
	assert.ErrorIs(t, obey[testOrder](strings.NewReader("{"), io.Discard), io.ErrUnexpectedEOF)
}

func TestAProcessEndsWithItsInput(t *testing.T) {
	t.Parallel()
	stdin, parent := io.Pipe()
	ended := make(chan error)
	go func() { ended <- obey[testOrder](stdin, io.Discard) }()
	_, err := io.WriteString(parent, `{"URL":"`+silent(t, func() {})+`"}`)
	require.NoError(t, err)
	require.NoError(t, parent.Close())
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
}
