//go:build nri0.8

package main

import (
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// failing is not to be had from this release.
var failing = stub.WithPluginName("go")

// wanted says: all that there are methods for.
func wanted(bool) api.EventMask { return 0 }
