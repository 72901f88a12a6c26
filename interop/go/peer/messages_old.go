//go:build ttrpc1.0

package main

import "github.com/gogo/protobuf/types"

// The messages of the service, as those versions know them.
type (
	StringValue = types.StringValue
	BytesValue  = types.BytesValue
	Int64Value  = types.Int64Value
)
