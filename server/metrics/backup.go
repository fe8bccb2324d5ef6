package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Uploads says how far a continuous backup is, as package backup tells it.
type Uploads struct {
	Lag     time.Duration // what the loss of the machine would cost now
	Every   time.Duration // how often all is copied; 0 if the log is uploaded all the time
	Err     error         // why the last attempt failed, nil if it did not
	Objects int64         // uploaded since the start
	Bytes   int64         // of them

	VerifyEvery time.Duration // how often everything in the bucket is checked; 0 if never
	Verified    time.Time     // when it was last found to be good, zero if never
	Damage      int           // what the last check has found to be damaged or missing
}

var (
	backupLag     = desc("backup_lag_seconds", "What the loss of the machine would cost now, as time.")
	backupEvery   = desc("backup_interval_seconds", "How often all is copied; 0 if the log is uploaded all the time.")
	backupFailing = desc("backup_failing", "1 while uploads of the backup fail.")
	backupObjects = desc("backup_objects_total", "Objects that the backup has uploaded.")
	backupBytes   = desc("backup_bytes_total", "Bytes that the backup has uploaded.")

	backupVerified = desc("backup_verified_timestamp_seconds",
		"When everything in the bucket was last found to be good, 0 if never; only if it is checked.")
	backupVerifyEvery = desc("backup_verify_every_seconds", "How often everything in the bucket is checked.")
	backupDamage      = desc("backup_damage", "What the last check has found in the bucket that is damaged or missing.")
)

// Backup collects metrics of a continuous backup.
func Backup(status func() Uploads) prometheus.Collector { return backup(status) }

type backup func() Uploads

// Describe implements [prometheus.Collector].
func (backup) Describe(to chan<- *prometheus.Desc) {
	to <- backupLag
	to <- backupEvery
	to <- backupFailing
	to <- backupObjects
	to <- backupBytes
	to <- backupVerified
	to <- backupVerifyEvery
	to <- backupDamage
}

// Collect implements [prometheus.Collector].
func (f backup) Collect(to chan<- prometheus.Metric) {
	u := f()
	to <- prometheus.MustNewConstMetric(backupLag, prometheus.GaugeValue, u.Lag.Seconds())
	to <- prometheus.MustNewConstMetric(backupEvery, prometheus.GaugeValue, u.Every.Seconds())
	to <- prometheus.MustNewConstMetric(backupFailing, prometheus.GaugeValue, truth(u.Err != nil))
	to <- prometheus.MustNewConstMetric(backupObjects, prometheus.CounterValue, float64(u.Objects))
	to <- prometheus.MustNewConstMetric(backupBytes, prometheus.CounterValue, float64(u.Bytes))
	if u.VerifyEvery == 0 {
		return
	}
	verified := 0.0
	if !u.Verified.IsZero() {
		verified = float64(u.Verified.UnixMilli()) / 1000
	}
	to <- prometheus.MustNewConstMetric(backupVerified, prometheus.GaugeValue, verified)
	to <- prometheus.MustNewConstMetric(backupVerifyEvery, prometheus.GaugeValue, u.VerifyEvery.Seconds())
	to <- prometheus.MustNewConstMetric(backupDamage, prometheus.GaugeValue, float64(u.Damage))
}

// Followed says how far a copy is that follows a backup, as package backup tells it.
type Followed struct {
	Lag     time.Duration // since it had all that was in the bucket
	State   time.Time     // it has all that was visible then; zero if there is no state yet
	Err     error         // why the last attempt failed, nil if it did not
	Bases   int64         // that it has changed to since the start
	Objects int64         // of the log, that it has fetched
	Bytes   int64         // that it has fetched
}

var (
	followLag     = desc("follow_lag_seconds", "How long ago the copy had all that was in the bucket.")
	followState   = desc("follow_state_timestamp_seconds", "The moment whose state the copy has, as a Unix time.")
	followFailing = desc("follow_failing", "1 while the copy cannot be kept up to date.")
	followBases   = desc("follow_bases_total", "Bases that the copy has changed to.")
	followObjects = desc("follow_objects_total", "Objects of the log that the copy has fetched.")
	followBytes   = desc("follow_bytes_total", "Bytes that the copy has fetched.")
)

// Follower collects metrics of a copy that follows a backup.
func Follower(status func() Followed) prometheus.Collector { return follower(status) }

type follower func() Followed

// Describe implements [prometheus.Collector].
func (f follower) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{followLag, followState, followFailing, followBases, followObjects, followBytes} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (f follower) Collect(to chan<- prometheus.Metric) {
	s := f()
	to <- prometheus.MustNewConstMetric(followLag, prometheus.GaugeValue, s.Lag.Seconds())
	if !s.State.IsZero() {
		to <- prometheus.MustNewConstMetric(followState, prometheus.GaugeValue, float64(s.State.UnixMilli())/1000)
	}
	to <- prometheus.MustNewConstMetric(followFailing, prometheus.GaugeValue, truth(s.Err != nil))
	to <- prometheus.MustNewConstMetric(followBases, prometheus.CounterValue, float64(s.Bases))
	to <- prometheus.MustNewConstMetric(followObjects, prometheus.CounterValue, float64(s.Objects))
	to <- prometheus.MustNewConstMetric(followBytes, prometheus.CounterValue, float64(s.Bytes))
}
