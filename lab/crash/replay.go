package crash

import (
	"context"
	"math/rand/v2"
)

// replay judges again what a crash has left, and lets a victim go on with it if nothing is wrong: what one could not do shows then.
func (r *kindRunner) replay(ctx context.Context, c cell, h *history, s spec, dir string, t rowTally) (Judgement, bool, error) {
	rnd := rand.New(rand.NewPCG(h.Seed, 9))
	j, fatal, err := r.judge(ctx, c, h, s, dir, rnd, t, nil)
	if err != nil || fatal || j.broken() {
		return j, fatal, err
	}
	h.Skipped = append(h.Skipped, j.Skipped...)
	h.begin(s.Gen+1, j.Survived+1)
	v := &victim{command: r.child, spec: r.victimSpec(c, dir, h, killRate), ledger: &ledger{}, place: func(uint64) position { return 0 }, entry: c.capabilities}
	if err := r.runVictim(ctx, v, moment{acks: replayAcks}, nil); err != nil {
		return j, false, err
	}
	for _, finding := range v.ledger.findings() {
		j.find(&j.Wrong, "going on, %s", finding)
	}
	return j, false, nil
}

// replayAcks is how many batches are written after what evidence holds was found in order.
const replayAcks = 20
