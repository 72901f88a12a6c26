//go:build !nri0.8

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// failing says that requests which are not answered in time are to fail.
var failing = stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true, KeepConnected: true})

// ValidateContainerAdjustment is an event from 0.10.0 on.
func (p *plugin) ValidateContainerAdjustment(_ context.Context, request *api.ValidateContainerAdjustmentRequest) error {
	name := request.GetContainer().GetName()
	owner, _ := request.GetOwners().EnvOwner(request.GetContainer().GetId(), "GO")
	fmt.Println("got ValidateContainerAdjustment", name, owner, len(request.GetPlugins()))
	if name == "invalid" {
		return errors.New("not valid")
	}
	return nil
}

// wanted is all events, but validation only of who is to validate: without its consent nothing is created, also
// while it is late.
func wanted(validates bool) api.EventMask {
	mask := api.MustParseEventMask("all")
	if !validates {
		mask.Clear(api.Event_VALIDATE_CONTAINER_ADJUSTMENT)
	}
	return mask
}
