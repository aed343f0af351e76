package main

import (
	"context"
	"net/http"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/internal/stage"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
)

// heeded does l through a Transport that only obeys: it knows of the limit what
// the server tells.
func heeded(ctx context.Context, l stage.Load, url string) stage.Outcome {
	return through(ctx, &heed.Transport{}, l, url)
}

// paced does l through one that knows the limit, too.
func paced(ctx context.Context, l stage.Load, url string, limit int64) stage.Outcome {
	return through(ctx, &heed.Transport{Pacer: bucket(&quota.Memory{}, limit)}, l, url)
}

// bucket lets limit requests a second go, evenly: the burst that the server
// allows is left for what the network brings together.
func bucket(store quota.Reserver, limit int64) *pace.Shared {
	return &pace.Shared{
		Store:    store,
		Policies: []quota.Policy{{Quota: limit, Window: time.Second, Burst: 1}},
	}
}

func through(ctx context.Context, t *heed.Transport, l stage.Load, url string) stage.Outcome {
	base := l.Connections()
	defer base.CloseIdleConnections()
	t.Base = base
	return l.Do(ctx, stage.Get(&http.Client{Transport: t}, url))
}
