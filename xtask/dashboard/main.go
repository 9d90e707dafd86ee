// Says what Grafana's own schema has against a dashboard.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var read dashboard.Dashboard
	isFine := isEmpty(read.UnmarshalJSONStrict(text))
	if !isFine || !isEmpty(read.Validate()) {
		os.Exit(1)
	}
}

// Whether an error has nothing in it, as a list of none is one to Go; else it is said.
func isEmpty(err error) bool {
	if err == nil || err.Error() == "" {
		return true
	}
	fmt.Fprintln(os.Stderr, err)
	return false
}
