//go:build nri0.8

package main

import "github.com/containerd/nri/pkg/api"

// wanted says: all that there are methods for.
func wanted(bool) api.EventMask { return 0 }
