package adaptation

import (
	"context"
	"errors"
	"time"
)

// patience is some twenty times the longest that a plugin at work was seen to take to read.
const patience = 100 * time.Millisecond

// isLateOnly says that an error is a missed deadline of a plugin that reads what it is sent: it is slow,
// and no reason to close it.
func (p *plugin) isLateOnly(err error) bool {
	reader, ok := p.mux.(interface{ IsRead(time.Duration) bool })
	return ok && errors.Is(err, context.DeadlineExceeded) && reader.IsRead(patience)
}
