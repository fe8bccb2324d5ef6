package kinds

import (
	"context"
	"math/rand/v2"

	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// Replay judges again what a crash has left, and lets a victim go on with it if nothing is wrong: what one could
// not do shows then.
func (r *Runner) Replay(
	ctx context.Context, c Row, h *protocol.History, s protocol.Spec, dir string, t Tally,
) (j protocol.Judgement, fatal bool, err error) {
	rnd := rand.New(rand.NewPCG(h.Seed, 9))

	// A history that was saved has all that was promised. Nothing is heard any more, so there is no ledger.
	j, fatal, err = r.judge(ctx, c, h, s, dir, rnd, t, nil)
	if err != nil || fatal || j.Broken() {
		return j, fatal, err
	}

	h.Skipped = append(h.Skipped, j.Skipped...)
	h.Begin(s.Gen+1, j.Survived+1)
	v := &victim{
		command: r.Child, spec: r.victimSpec(c, dir, h, killRate), ledger: &protocol.Ledger{},
		place: func(uint64) protocol.Position { return 0 }, row: c,
	}
	if err := r.runVictim(ctx, v, moment{acks: replayAcks}, nil); err != nil {
		return j, false, err
	}

	for _, finding := range v.ledger.Findings() {
		j.Find(&j.Wrong, "going on, %s", finding)
	}

	return j, false, nil
}

// replayAcks is how many batches are written after what evidence holds was found in order.
const replayAcks = 20
