// Program lakefs is the lakeFS server, built from its published Go module: see deploy/embedded/lakefs.py.
package main

import "github.com/treeverse/lakefs/cmd/lakefs/cmd"

func main() {
	cmd.Execute()
}
