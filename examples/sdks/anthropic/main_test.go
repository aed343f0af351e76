package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/examples/sdks/internal/apitest"
)

func Example() {
	main()
	// Output: You may.
}

func TestARefusalIsWaitedFor(t *testing.T) {
	const overloaded = `{"type":"error","error":{"type":"overloaded_error"}}`
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t, apitest.JSON(529, overloaded, "Retry-After", "7"), apitest.JSON(200, answer))
		client := newClient(srv.Transport(), "secret")
		message, err := client.Messages.New(context.Background(), ask("May I?"))
		require.NoError(t, err)
		assert.Equal(t, "You may.", message.Content[0].Text)
		apitest.Waited(t, srv, 7*time.Second)
	})
}
