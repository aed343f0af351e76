package ratelimit

// An item is what the fields say of a policy whatever its state.
type item struct {
	name  string
	head  string // how its member of Draft11's RateLimit begins: "default";r=
	limit string // its quota
}

func itemsOf(policies []Limit) []item {
	items := make([]item, len(policies))
	var space [128]byte
	for i := range policies {
		items[i].name = policies[i].Name
		items[i].head = string(appendHead(space[:0], nil, policies[i].Name))
		items[i].limit = string(appendInteger(space[:0], policies[i].Quota))
	}
	return items
}

// item returns that of the policy called name, which is told as the i-th: most
// often it was the i-th that was prepared, too. It returns nil if there is none.
func (f *frame) item(i int, name string) *item {
	for range f.items {
		if i >= len(f.items) {
			i = 0
		}
		if f.items[i].name == name {
			return &f.items[i]
		}
		i++
	}
	return nil
}
