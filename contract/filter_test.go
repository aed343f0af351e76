package contract_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/contract"
)

func ids(clauses []contract.Clause) (list []string) {
	for _, c := range clauses {
		list = append(list, c.ID)
	}
	return list
}

func TestFiltersChooseClauses(t *testing.T) {
	client, server := contract.Client(), contract.Server()
	require.Equal(t, ids(client), ids(contract.Select(client)))
	require.Equal(t, []string{"client/wait-seconds", "client/wait-date", "client/same-request", "client/idempotent"},
		ids(contract.Select(client, contract.IETFOnly)))
	require.Equal(t, []string{"client/cool-down", "client/attempts", "client/budget", "client/herd"},
		ids(contract.Select(client, contract.HeedOnly)))
	require.Equal(t, []string{"server/obeyed", "server/fields", "server/fields-agree", "server/used-up"},
		ids(contract.Select(server, contract.HeedOnly)))
	require.Equal(t, []string{"client/cool-down", "client/budget"}, ids(contract.Select(client, contract.MustOnly,
		contract.HeedOnly, contract.Except("client/attempts", "no/such-clause"))))
	require.Empty(t, contract.Select(client, contract.IETFOnly, contract.HeedOnly))
	require.Len(t, client, 8, "Select does not change its argument")
	require.NotContains(t, ids(client), "")
}

// A clause of the user's comes from neither.
func TestEveryClauseComesFromTheIETFOrFromHeed(t *testing.T) {
	for _, c := range slices.Concat(contract.Client(), contract.Server()) {
		require.NotEqual(t, contract.IETFOnly(c), contract.HeedOnly(c), c.ID)
	}
	own := contract.Clause{Ref: "our API guide"}
	require.False(t, contract.IETFOnly(own))
	require.False(t, contract.HeedOnly(own))
}
