package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/heedhttp/heed/examples/sdks/internal/apitest"
	"github.com/heedhttp/heed/testserver"
)

func Example() {
	main()
	// Output: made {"metadata": {"uid": "7"}}
}

const (
	busy = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests",
		"message": "too many requests, please try again later", "details": {"retryAfterSeconds": 10}}`
	made = `{"metadata": {"uid": "7"}}`
)

// refusal returns the answer of priority and fairness.
func refusal(fields ...string) testserver.Step {
	fields = append(fields, "X-Kubernetes-Pf-Flowschema-Uid", "a", "X-Kubernetes-Pf-Prioritylevel-Uid", "b")
	return apitest.JSON(429, busy, fields...)
}

func client(t *testing.T, srv *testserver.Server) *rest.RESTClient {
	client, err := newClient(&rest.Config{Host: srv.URL, Transport: srv.Transport()})
	require.NoError(t, err)
	return client
}

func create(client *rest.RESTClient, body any) ([]byte, error) {
	result := client.Post().AbsPath(configMaps).Body(body).Do(context.Background())
	answer, _ := result.Raw()
	return answer, result.Error()
}

func TestAnObjectIsCreatedAfterTheWait(t *testing.T) {
	for _, c := range []struct {
		wait time.Duration
		step testserver.Step
	}{
		{10 * time.Second, refusal("Retry-After", "10")},
		{10 * time.Second, refusal()}, // the body says it
		{32 * time.Second, refusal("Retry-After", "32")},
		{5 * time.Second, testserver.Step{Status: 429, RetryAfter: 5 * time.Second, Body: "apiserver is shutting down"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := apitest.Start(t, c.step, apitest.JSON(201, made))
			got, err := create(client(t, srv), []byte(`{"data": {"x": "`+strings.Repeat("x", 1<<20)+`"}}`))
			require.NoError(t, err)
			assert.Equal(t, made, string(got))
			assert.Greater(t, srv.Log()[1].BodyLength, int64(1<<20))
			apitest.Waited(t, srv, c.wait)
		})
	}
}

func TestClientGosOwnRetriesAreOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t)
		step := refusal("Retry-After", "10")
		step.Times = -1
		srv.Route("/", step)
		_, err := create(client(t, srv), []byte("{}"))
		require.True(t, errors.IsTooManyRequests(err), "%v", err)
		seconds, told := errors.SuggestsClientDelay(err)
		assert.True(t, told)
		assert.Equal(t, 10, seconds)
		apitest.Waited(t, srv, 10*time.Second, 10*time.Second, 10*time.Second) // heed's four attempts
	})
}

func TestARefusedEvictionDelaysNoOtherRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t, testserver.Step{Body: made, Times: -1})
		const budget = `{"kind": "Status", "apiVersion": "v1", "code": 429, "reason": "TooManyRequests", "details":
			{"retryAfterSeconds": 10, "causes": [{"reason": "DisruptionBudget", "message": "still being processed"}]}}`
		srv.Route("POST /", apitest.JSON(429, budget, "Retry-After", "10"))
		client := client(t, srv)
		begin := time.Now()
		evicted := make(chan error)
		go func() {
			_, err := create(client, []byte("{}"))
			evicted <- err
		}()
		synctest.Wait()
		require.NoError(t, client.Get().AbsPath(configMaps).Do(context.Background()).Error())
		assert.Zero(t, time.Since(begin))
		require.NoError(t, <-evicted)
		assert.GreaterOrEqual(t, time.Since(begin), 10*time.Second)
		assert.Len(t, srv.Log(), 3)
	})
}

func TestABodyThatCannotBeReplayedIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := apitest.Start(t, refusal("Retry-After", "10"))
		stream := io.MultiReader(strings.NewReader("{"), strings.NewReader("}"))
		_, err := create(client(t, srv), stream)
		require.True(t, errors.IsTooManyRequests(err), "%v", err)
		apitest.Waited(t, srv)
	})
}

func TestAWatchStreamsAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := strings.Repeat(`{"type": "ADDED", "object": {"kind": "ConfigMap"}}`+"\n", 2000)
		srv := apitest.Start(t, refusal("Retry-After", "10"), apitest.JSON(200, events))
		stream, err := client(t, srv).Get().AbsPath(configMaps).Param("watch", "true").Stream(context.Background())
		require.NoError(t, err)
		defer stream.Close()
		got, err := io.ReadAll(stream)
		require.NoError(t, err)
		assert.Equal(t, events, string(got))
		apitest.Waited(t, srv, 10*time.Second)
	})
}
