//! Tests of the test bed in real network namespaces. They need root and iproute2, and are skipped with a
//! message without them.

use std::{path::Path, sync::atomic::AtomicBool, time::Instant};

use serpent_instrument::{
    LabError,
    bed::{BedConfig, Bottleneck, TestBed},
    setting::{PathSetting, UploadSetting},
};

fn config(bottleneck: Bottleneck) -> BedConfig {
    BedConfig {
        rate: "10mbit".parse().unwrap(),
        queue_packets: 1000,
        bottleneck,
        gso_segments: 1,
        congestion: "cubic".to_owned(),
        ..BedConfig::default()
    }
}

fn namespaces_of_this_process() -> usize {
    let prefix = format!("serpent-lab-{}-", std::process::id());
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    names.filter(|name| name.file_name().to_string_lossy().starts_with(&prefix)).count()
}

/// One test, because a process has one bed at a time.
#[test]
fn a_bed_is_what_it_says_or_is_refused_and_leaves_nothing() {
    if !rustix::process::geteuid().is_root() || !Path::new("/sbin/tc").exists() {
        let missing = "network namespaces need root and iproute2";
        assert!(std::env::var_os("CI").is_none(), "in CI this must run: {missing}");
        eprintln!("SKIPPED: {missing}");
        return;
    }
    for bottleneck in [Bottleneck::Server, Bottleneck::Router] {
        let bed = TestBed::build(config(bottleneck)).unwrap();
        bed.shape().unwrap();
        let calibration = bed.calibrate().unwrap();
        assert_eq!(calibration.congestion, "cubic");
        assert!((calibration.rate_ratio - 1.0).abs() < 0.05, "{calibration:?}");
        assert!(calibration.mean_frame_bytes <= 1514.0, "{calibration:?}");
        assert_eq!(bed.qdisc().unwrap().drops, 0);
        assert_eq!((bed.emulation(), bed.groups(), calibration.paths.len()), (None, 1, 1), "no path, no hop for one");
        assert_eq!((calibration.paths[0].loss, &*calibration.paths[0].congestion), (0.0, "cubic"));
        assert!(bed.wan().unwrap().is_none());

        bed.set_rate("5mbit".parse().unwrap()).unwrap();
        let refused = bed.calibrate().unwrap_err();
        assert!(matches!(&refused, LabError::TestBed(reason) if reason.contains("10mbit was set")), "{refused}");

        assert!(namespaces_of_this_process() >= 2);
        drop(bed);
        assert_eq!(namespaces_of_this_process(), 0);
    }

    let upload = UploadSetting { until_s: 1.0, streams: 2, ..UploadSetting::default() };
    let uploads = vec![upload.clone()];
    let path = PathSetting { rtt_ms: 20.0, ..PathSetting::default() };
    for paths in [vec![], vec![path]] {
        let shared = BedConfig { uploads: uploads.clone(), paths, ..config(Bottleneck::Router) };
        let bed = TestBed::build(shared).unwrap();
        bed.shape().unwrap();
        let before = bed.qdisc().unwrap().bytes;
        let came = bed.upload(&upload, Instant::now(), &AtomicBool::new(false)).unwrap();
        let passed = bed.qdisc().unwrap().bytes - before;
        assert!(came > 100_000 && passed > came, "{came} bytes came, {passed} passed the bottleneck");
        assert_eq!(bed.upload(&upload, Instant::now(), &AtomicBool::new(true)).unwrap(), 0, "it is over");
    }
    assert_eq!(namespaces_of_this_process(), 0);

    let unknown =
        TestBed::build(BedConfig { congestion: "telepathy".to_owned(), ..config(Bottleneck::Server) }).unwrap_err();
    assert!(matches!(&unknown, LabError::Machine(reason) if reason.contains("telepathy")), "{unknown}");
    assert_eq!(namespaces_of_this_process(), 0, "half a bed is removed too");
}
