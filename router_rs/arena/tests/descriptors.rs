//! Alone in its process, whose limit of descriptors it changes.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use router_arena::{ARENA_BYTES_DEFAULT, Arena};

fn arenas_mapped() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("Linux").matches("pyserve-arena").count()
}

#[test]
fn without_a_descriptor_there_is_no_arena_and_nothing_is_left() {
    let usual = getrlimit(Resource::Nofile);
    let none = Rlimit { current: Some(0), ..usual };
    setrlimit(Resource::Nofile, none).expect("a lower limit");
    let refused = Arena::create(ARENA_BYTES_DEFAULT).map(drop);
    setrlimit(Resource::Nofile, usual).expect("the limit as it was");
    let error = refused.expect_err("there is no descriptor");
    assert_eq!(Some(Errno::MFILE.raw_os_error()), error.raw_os_error());
    assert_eq!(0, arenas_mapped());

    let (arena, _descriptor) = Arena::create(ARENA_BYTES_DEFAULT).expect("a descriptor");
    assert_eq!(1, arenas_mapped());
    drop(arena);
    assert_eq!(0, arenas_mapped());
}
