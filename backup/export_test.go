package backup

import (
	"context"
	"time"

	"gocloud.dev/blob"
)

// SetRequestTimeout sets how long a request may make no progress, until restore is called.
func SetRequestTimeout(d time.Duration) (restore func()) {
	was := requestTimeout
	requestTimeout = d

	return func() { requestTimeout = was }
}

// SetLookEvery sets how often a backup looks at what is in the bucket, until restore is called.
func SetLookEvery(d time.Duration) (restore func()) {
	was := lookEvery
	lookEvery = d

	return func() { lookEvery = was }
}

// PruneNow is Prune of a bucket in which nothing is under way.
func PruneNow(ctx context.Context, bucket *blob.Bucket, keep Keep) (Pruned, error) {
	return prune(ctx, bucket, keep, "", time.Now().Add(time.Minute), times{})
}

// FollowStep calls f between the steps that change a directory which follows, until the function that it returns is
// called.
func FollowStep(f func(dir string)) (end func()) {
	was := followStep
	followStep = f

	return func() { followStep = was }
}
