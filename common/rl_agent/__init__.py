"""
Acts and learns. It knows no socket. Its folders:

    algorithms     a file each, to be read top to bottom: how it acts, and the loss whose gradient it pushes
    environments   environments in lockstep behind one interface
    networks       networks, action distributions and the flat vector of their parameters
    trial          a trial of an environment, a network and an algorithm before a run begins with them
"""
