//! Calls of libostree that can fail without saying why.
//!
//! libostree 2022.7 ends a repo's transaction with the removal of a mark, and passes no place for an error
//! there. Where the mark cannot be removed, `ostree_repo_commit_transaction` returns FALSE and sets no
//! error, and so does whatever ends a transaction inside: the switch of deployments and the cleanup of a
//! sysroot. The bindings take that for success in a release build, and panic in a debug build. Here it is
//! an error, and says what failed.

// The bindings judge by the error alone; what the function returned is to be had only below them.
#![allow(unsafe_code)]

use anyhow::Result;
use ostree::glib::translate::{ToGlibPtr as _, from_glib_full};
use ostree::{ffi, glib};
use std::ptr;

use crate::error::Fault;

/// Writes what a transaction of the repo holds, and ends it.
pub(super) fn commit_transaction(repo: &ostree::Repo) -> Result<()> {
    explained("ending a transaction of the repo", |error| {
        // SAFETY: `repo` lives as long as the call; statistics and cancellable may be NULL.
        unsafe {
            ffi::ostree_repo_commit_transaction(
                repo.to_glib_none().0,
                ptr::null_mut(),
                ptr::null_mut(),
                error,
            )
        }
    })
}

/// Makes `order` the boot order, without the cleanup that may follow.
pub(super) fn write_deployments(sysroot: &ostree::Sysroot, order: &[ostree::Deployment]) -> Result<()> {
    let options = ostree::SysrootWriteDeploymentsOpts { do_postclean: false };
    explained("writing the boot order", |error| {
        // SAFETY: sysroot, the list with its deployments and the options are temporaries of glib's that
        // live until the call has ended, and libostree keeps none of them; the cancellable may be NULL.
        unsafe {
            ffi::ostree_sysroot_write_deployments_with_options(
                sysroot.to_glib_none().0,
                order.to_glib_none().0,
                options.to_glib_none().0.cast_mut(),
                ptr::null_mut(),
                error,
            )
        }
    })
}

/// Removes deployments that no boot entry names, and brings the refs of the others up to date.
pub(super) fn prepare_cleanup(sysroot: &ostree::Sysroot) -> Result<()> {
    explained("cleaning up after deployments", |error| {
        // SAFETY: `sysroot` lives as long as the call; the cancellable may be NULL.
        unsafe { ffi::ostree_sysroot_prepare_cleanup(sysroot.to_glib_none().0, ptr::null_mut(), error) }
    })
}

/// Judges a call by what it returns. `what` is for the message when that is all there is.
fn explained(
    what: &str,
    call: impl FnOnce(*mut *mut glib::ffi::GError) -> glib::ffi::gboolean,
) -> Result<()> {
    let mut error = ptr::null_mut();
    if call(&raw mut error) != glib::ffi::GFALSE {
        return Ok(());
    }
    if error.is_null() {
        return Err(Fault::failed(format!("{what} failed"))
            .why("libostree does not say why; the file system that holds the repo may be read-only or broken")
            .next("look for errors of the disk with journalctl -k, then run the command again")
            .into());
    }
    // SAFETY: it was set by the call, which gives it away.
    let error: glib::Error = unsafe { from_glib_full(error) };
    Err(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_an_error_is_one() {
        let error = explained("ending it", |_| glib::ffi::GFALSE).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ending it failed: libostree does not say why; the file system that holds the repo may be read-only or broken"
        );
        assert!(explained("ending it", |_| glib::ffi::GTRUE).is_ok());
    }

    #[test]
    fn an_error_is_told_in_its_own_words() {
        let folder = tempfile::tempdir().unwrap();
        let repo = ostree::Repo::new_for_path(folder.path());
        repo.create(ostree::RepoMode::BareUser, ostree::gio::Cancellable::NONE).unwrap();
        repo.prepare_transaction(ostree::gio::Cancellable::NONE).unwrap();
        commit_transaction(&repo).unwrap();
        let sysroot = ostree::Sysroot::new(Some(&ostree::gio::File::for_path(folder.path().join("none"))));
        let error = explained("loading it", |error| {
            // SAFETY: as above.
            unsafe { ffi::ostree_sysroot_load(sysroot.to_glib_none().0, ptr::null_mut(), error) }
        });
        assert!(error.unwrap_err().to_string().contains("No such file"));
    }
}
