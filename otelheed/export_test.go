package otelheed

import "github.com/heedhttp/heed"

// Settings are what a Transport sends with.
func Settings(t *Transport) *heed.Transport { return t.heed }
