"""What setup.cfg cannot say: the start-up hook beside the packages, and regressions/ inside the wheel."""

import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

HOOK = "pyserini_rescale_hook.pth"


class BuildWithHook(build_py):
    """Put the .pth file at the top of the wheel, hence of site-packages, and the regressions into the package."""

    def run(self):
        super().run()
        if self.editable_mode:
            # Nothing of build_lib reaches an editable wheel; what lies where install_lib points does.
            shutil.copy(HOOK, self.get_finalized_command("install").install_lib)
        else:
            shutil.copy(HOOK, self.build_lib)
            shutil.copytree(
                "regressions", os.path.join(self.build_lib, "pyserini_rescale", "regressions"), dirs_exist_ok=True
            )


setup(cmdclass={"build_py": BuildWithHook})
