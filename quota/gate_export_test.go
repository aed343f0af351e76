package quota

// KeysInFlight reports of how many keys m keeps places in use.
func KeysInFlight(m *Memory) (n int) {
	for i := range m.inFlight.parts {
		n += len(m.inFlight.parts[i].keys)
	}
	return n
}
