//go:build !ttrpc1.0

package main

import "google.golang.org/protobuf/types/known/wrapperspb"

// The messages of the service are known types of protobuf.
type (
	StringValue = wrapperspb.StringValue
	BytesValue  = wrapperspb.BytesValue
	Int64Value  = wrapperspb.Int64Value
)
