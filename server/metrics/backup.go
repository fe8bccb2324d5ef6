package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Uploads says how far a continuous backup is, as package backup tells it.
type Uploads struct {
	Lag     time.Duration // what the loss of the machine would cost now
	Err     error         // why the last attempt failed, nil if it did not
	Objects int64         // uploaded since the start
	Bytes   int64         // of them
}

var (
	backupLag     = desc("backup_lag_seconds", "What the loss of the machine would cost now, as time.")
	backupFailing = desc("backup_failing", "1 while uploads of the backup fail.")
	backupObjects = desc("backup_objects_total", "Objects that the backup has uploaded.")
	backupBytes   = desc("backup_bytes_total", "Bytes that the backup has uploaded.")
)

// Backup collects metrics of a continuous backup.
func Backup(status func() Uploads) prometheus.Collector { return backup(status) }

type backup func() Uploads

// Describe implements [prometheus.Collector].
func (backup) Describe(to chan<- *prometheus.Desc) {
	to <- backupLag
	to <- backupFailing
	to <- backupObjects
	to <- backupBytes
}

// Collect implements [prometheus.Collector].
func (f backup) Collect(to chan<- prometheus.Metric) {
	u := f()
	to <- prometheus.MustNewConstMetric(backupLag, prometheus.GaugeValue, u.Lag.Seconds())
	to <- prometheus.MustNewConstMetric(backupFailing, prometheus.GaugeValue, truth(u.Err != nil))
	to <- prometheus.MustNewConstMetric(backupObjects, prometheus.CounterValue, float64(u.Objects))
	to <- prometheus.MustNewConstMetric(backupBytes, prometheus.CounterValue, float64(u.Bytes))
}
